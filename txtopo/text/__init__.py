"""What people read.

- :mod:`~txtopo.text.words`: numbers, times and sizes in words; :mod:`~txtopo.text.suggestions`: the known name that an
  unknown one resembles; :mod:`~txtopo.text.extras`: how to install what is missing.
- Hidden from eyes: :mod:`~txtopo.text.secrecy` finds secrets in texts, and
  :mod:`~txtopo.text.client_properties` are a client's settings that hold references to them.
- :mod:`~txtopo.text.printable` makes foreign text safe for a terminal; :mod:`~txtopo.text.repeated` shows the same
  message only now and then.
"""
