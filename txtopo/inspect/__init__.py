"""Pure reads of what runs leave in their folders; commands and the page show them, each in its way.

``questions`` says what can be asked, and ``backend`` answers for the topologies of a folder, with the records of
``answers``. What it reads has four folders: ``run`` is what is known of a run at one moment, ``timeline`` what it
records as it goes, ``past`` what journal and tables say, and ``audit`` whether that is true.
"""
