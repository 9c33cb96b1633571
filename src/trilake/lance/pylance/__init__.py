"""The pylance names: ``LanceDataset``, ``LanceScanner``, ``LanceOperation`` and what they return."""
