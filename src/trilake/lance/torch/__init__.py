"""Lance for torch: datasets (:mod:`~trilake.lance.torch.data`), distances and k-means of tensors.

Torch comes with ``pip install "trilake[torch]"``.
"""
