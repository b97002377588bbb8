"""Chat templates whose expectations the router must read from them as the engine does."""

from __future__ import annotations

LOOP = "{% for message in messages %}"
END = "{% endfor %}"

TEMPLATE_CASES = {
    "plain": LOOP + "{{ message.content }}" + END,
    "parts": LOOP + "{% for part in message.content %}{{ part.text }}{% endfor %}" + END,
    "parts-by-key": LOOP + "{% for p in message['content'] %}{{ p['text'] }}{% endfor %}" + END,
    "parts-filtered": LOOP + "{% for p in message.content | list %}{{ p }}{% endfor %}" + END,
    "parts-sliced": LOOP + "{% for p in message.content[1:] %}{{ p }}{% endfor %}" + END,
    "messages-sliced": "{% for m in messages[1:] %}{% for p in m.content %}{% endfor %}" + END,
    "messages-filtered": "{% for m in messages | reverse %}{% for p in m.content %}{% endfor %}"
    + END,
    "alias": "{% set a = messages %}{% for m in a %}{% for p in m.content %}{% endfor %}" + END,
    "alias-of-alias": "{% set a = messages[1:] %}{% set b = a | list %}"
    "{% for m in b %}{% for p in m.content %}{% endfor %}" + END,
    "alias-of-itself": "{% set messages = messages[1:] %}"
    "{% for m in messages %}{% for p in m.content %}{% endfor %}" + END,
    "content-alias": LOOP
    + "{% set c = message.content %}{% for p in c %}{{ p }}{% endfor %}"
    + END,
    "one-message": "{% set m = messages[0] %}{% for p in m.content %}{{ p }}{% endfor %}",
    "both": LOOP + "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for p in message.content %}{{ p.text }}{% endfor %}{% endif %}" + END,
    "other-loop": LOOP + "{% for c in message.tool_calls %}{{ c }}{% endfor %}" + END,
    "other-content": "{% for d in documents %}{% for p in d.content %}{{ p }}{% endfor %}" + END,
    "tuple-loop": "{% for a, b in messages %}{% for p in a.content %}{{ p }}{% endfor %}" + END,
    "tuple-part": LOOP + "{% for a, b in message.content %}{{ a }}{% endfor %}" + END,
    "tuple-set": "{% set a, b = messages %}" + LOOP + "{{ message.content }}" + END,
    "generation": LOOP + "{% generation %}{{ message.content }}{% endgeneration %}" + END,
    "break": LOOP + "{% if loop.index > 2 %}{% break %}{% endif %}{{ message.content }}" + END,
    "macro": "{% macro show(c) %}{% for p in c %}{{ p.text }}{% endfor %}{% endmacro %}"
    + LOOP
    + "{{ show(message.content) }}"
    + END,
    "namespace": "{% set ns = namespace(x=1) %}{% set ns.x = messages %}"
    + LOOP
    + "{{ ns.x }}"
    + END,
    "variables": "{{ bos_token }}{% if tools %}{{ custom }}{% endif %}{% set own = 1 %}{{ own }}"
    "{{ strftime_now('%Y') }}{{ messages }}",
    "constant": "hello",
}
