"""From label files and images to tables, tiles and the tensors of a data set."""
