"""Lance datasets for torch: :mod:`trilake.lance.torch.data`.  Torch comes with ``pip install "trilake[torch]"``."""
