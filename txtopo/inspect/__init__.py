"""Pure reads of what runs leave in their folders; commands and the page show them, each in its way.

``questions`` says what can be asked, and ``backend`` answers for the topologies of a folder. What it reads has four
folders: ``run`` is what is known of a run at one moment, ``timeline`` what it records as it goes, ``past`` what journal
and tables say, and ``audit`` whether that is true. An answer is a type, which stands beside what makes it; as JSON, its
names are in camel case. An answer that another version of txtopo has made may lack names, which then have their
defaults, and may have others, which are ignored. Times are in seconds since 1970.
"""
