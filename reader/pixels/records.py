"""What a device must know of each view: a row of int64[views, RECORD_LENGTH], in this order.

The planes of a view lie one behind the other in memory, each reaching at least as far as the box
needs. Where they begin and their strides are in bytes, all else is in samples.
"""

(
    KIND,  # NOTHING, PIXELS or PLANES
    FIRST,  # where red or luma begins
    SECOND,  # where green or Cb begins
    THIRD,  # where blue or Cr begins
    STRIDE,  # from row to row of what begins at FIRST
    TOP,  # row of the box there
    ROWS,  # how many rows there are
    LEFT,
    COLUMNS,
    CHROMA_STRIDE,  # from row to row of Cb and Cr
    CHROMA_TOP,  # of the box, in pixels from where the first sample begins, which is two pixels
    CHROMA_ROWS,
    CHROMA_LEFT,
    CHROMA_COLUMNS,
    HEIGHT,  # of the box
    WIDTH,
    FLIP,  # 1 to swap left and right
    RECORD_LENGTH,
) = range(18)

NOTHING, PIXELS, PLANES = range(3)
"""No picture; interleaved red, green and blue; Y, Cb and Cr, of which chroma is halved."""
