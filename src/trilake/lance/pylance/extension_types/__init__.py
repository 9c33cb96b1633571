"""Arrow extension types of pylance: bfloat16 and images."""
