"""What views are made of: elements of HTML, numbers in words, and pictures as SVG."""
