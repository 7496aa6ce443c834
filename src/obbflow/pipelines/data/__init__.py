"""From raw images and labels to tiles, class map and class weights."""
