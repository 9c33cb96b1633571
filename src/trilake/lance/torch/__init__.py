"""Lance datasets for torch: :mod:`trilake.lance.torch.data`.  Torch is installed apart: ``pip install torch``."""
