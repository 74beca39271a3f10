"""What is done with each row alone: expressions over its fields, and the bolt that does such steps on columns.

``expressions`` is what may be said of a row, of which ``direct`` computes the simple ones; ``steps`` what is made of
rows; ``bolt`` does steps that follow each other. Nothing here knows of streams or transactions.
"""
