"""PyTorch integration: datasets (:mod:`~trilake.lance.torch.data`), distances and k-means of tensors.

Needs ``pip install "trilake[torch]"``.
"""
