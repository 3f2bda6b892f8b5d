"""Bounds of images that are drawn for a response, and of those that it draws on."""

from typing import Final

from moorage.limits.units import KIB, MIB

IMAGE_CALL_SECONDS_MAX: Final = 420
"""One call. OpenAI's guide speaks of up to two minutes for a complex prompt; four high-quality edits of large inputs took five."""

IMAGE_BYTES_MAX: Final = 20 * MIB
"""Of one image, drawn or drawn on; each is held in memory. OpenAI's largest come to 4-8 MB as PNG, and it takes inputs of up to 50."""

IMAGE_ANSWER_BYTES_MAX: Final = 112 * MIB
"""Of an image model's answer: the image and three that come before it, in base64."""

IMAGE_EVENT_BYTES_MAX: Final = 28 * MIB
"""Of one event of it: an image in base64."""

IMAGE_REFUSAL_BYTES_MAX: Final = 64 * KIB
"""So much is read of an answer that is none."""

IMAGE_CALL_BYTES_MAX: Final = 1 * MIB
"""Of a call's item and its events as they are stored: the images stand beside them."""

IMAGE_PROMPT_CHARS_MAX: Final = 32_000
"""OpenAI's bound of ``prompt``; more is cut off. Stability's models take 10,000."""

IMAGES_DRAWN_ON_MAX: Final = 16
"""Images of one edit (OpenAI's bound)."""

IMAGES_PER_ROUND_MAX: Final = 8
"""Calls that one turn may make: each costs as much as a long answer."""

IMAGE_PARTS_MAX: Final = 3
"""The API's own bound of ``partial_images``."""

IMAGE_MASK_CHARS_MAX: Final = 256 * KIB
"""Of a mask that stands in the request; it lies in the response's record. Larger ones come by ``file_id``."""

assert IMAGE_EVENT_BYTES_MAX >= IMAGE_BYTES_MAX * 4 // 3
assert IMAGE_ANSWER_BYTES_MAX >= (IMAGE_PARTS_MAX + 1) * IMAGE_EVENT_BYTES_MAX
