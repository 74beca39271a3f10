"""The graph of a topology, as text, Mermaid, Graphviz and JSON."""
