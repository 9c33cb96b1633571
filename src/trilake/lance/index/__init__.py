"""Indices of Lance datasets: BTREE over values, IVF_PQ over vectors, and exact search without any."""
