"""The API of pylance: ``LanceDataset``, ``LanceScanner``, ``LanceOperation`` and the classes that they return."""
