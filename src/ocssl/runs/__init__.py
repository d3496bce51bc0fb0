"""Runs: the paper's protocol in a folder that survives kills and ends with a result.

From settings to a result:

1. ``presets.resolve`` completes the settings that are given to a ``RunConfig``, which ``config`` declares.
2. ``run.start`` makes the learner, the images and their schedule (``data``) and the folder (``folder``); ``run.resume``
   takes the learner from the last checkpoint.
3. ``loop.RunLoop`` trains, measures (``probes``) and saves checkpoints. It reports to ``progress`` and ``trackers``.
4. ``state.make_result`` makes the result, with its names from ``naming``, and says what it was made of and where
   (``environment``).

``evaluate`` measures the encoder of a finished run on any data set, and ``format1`` reads what version 0.1 wrote.
"""
