"""What runs a topology of either kind: ``runner``, ``control`` while it runs, ``metrics`` and their ``exposition``."""
