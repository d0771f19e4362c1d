"""The evaluation of the StreamCloud paper, sections VI-B and VI-C.1."""
