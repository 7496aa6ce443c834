"""Training pipeline."""
