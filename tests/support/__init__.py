"""Helpers that several tests share.

| folder | holds |
|---|---|
| `suite` | How the suite runs: which tests, in what order, in which processes, and where files lie. |
| `checks` | What tests assert with: approved texts, results on disk, renderings, refusals. |
| `examples` | Answers, traces and events by hand, and strategies for any of them. |
| `builders` | Real things, as small as can be: policies, checkpoints, data sets, recordings, exports, trainings. |
| `fakes` | What stands in for a subject, a simulator, a robot or a reporter. |
| `devices` | An accelerator played on the CPU, and what runs on it. |
| `servers` | Policy servers of three protocols, which answer as the real ones do and misbehave on demand. |
| `programs` | Programs that tests start as processes of their own. |
| `factories`, `foreign`, `foreign_records`, `robot` | Packages of somebody else's, which tests put on the path. |
"""
