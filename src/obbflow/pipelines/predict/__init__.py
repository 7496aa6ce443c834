"""Prediction: sliding windows over new images, merge, export."""
