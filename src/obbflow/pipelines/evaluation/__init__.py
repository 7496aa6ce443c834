"""Final mAP of the best checkpoint."""
