"""What guessed tokens gain: tests/bench/speculate.py URL [ROUNDS [POLICY [TEXTS]]]

URL is a server that was started with --allow-control and has nothing else to do; TEXTS is part of the
names of those to take. Each text is asked for again and again, without guesses and with them by turns, so that both meet the same machine. A
table: how many steps decoding took, how many guesses were right, and how many times as fast the
tokens after the first came (median of the rounds' ratios, lowest and highest beside it). Answers
must be the same to the byte.
"""

import json
import re
import statistics
import sys
import urllib.request

PASSAGE = (
    "The old lighthouse keeper counted every ship that passed the northern rocks. On clear nights "
    "he wrote the names of the ships in a long grey book. On foggy nights he rang the bell once a "
    "minute and wrote nothing at all. In forty years he lost one page of the book to the wind."
)
CODE = """def total(items):
    result = 0
    for item in items:
        result = result + item.price * item.count
    return result

def mean(items):
    result = 0
    for item in items:
        result = result + item.price
    return result / len(items)
"""
TEXTS = {
    "a passage repeated": (f"Repeat this text word for word.\n\n{PASSAGE}", 0.0),
    "code with a name changed": (f"Write this again with `item` renamed to `entry`.\n\n{CODE}", 0.0),
    "a list that counts": ("Write the numbers from 1 to 40, each as `number N is N`.", 0.0),
    "a story, greedy": ("Tell me a long story about a fox and a river.", 0.0),
    "a story, temperature 1": ("Tell me a long story about a fox and a river.", 1.0),
}
TOKENS = 96


def call(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    head = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, head)) as reply:
        return reply.read().decode()


def counters(url):
    page = call(f"{url}/metrics")
    found = lambda name: float(re.search(rf"^tilewright:{name}\{{.*\}} (\S+)$", page, re.M)[1])
    names = ["iteration_tokens_total_count", "spec_decode_num_draft_tokens_total"]
    return [found(name) for name in [*names, "spec_decode_num_accepted_tokens_total"]]


def ask(url, policy, text, temperature):
    call(f"{url}/v1/engine/policies", {"policies": {"speculate": policy}})
    before = counters(url)
    body = {
        "messages": [{"role": "user", "content": text}],
        "temperature": temperature,
        "seed": 1,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "timings": True,
    }
    answer = json.loads(call(f"{url}/v1/chat/completions", body))
    said = answer["choices"][0]["message"]["content"]
    spent = [after - was for after, was in zip(counters(url), before)]
    return said, answer["timings"]["predicted_ms"], spent


def main():
    url, rounds = sys.argv[1].rstrip("/"), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    policy = sys.argv[3] if len(sys.argv) > 3 else "ngram"
    print(f"| {policy} | steps without | steps with | right of guessed | times as fast |")
    print("|---|---:|---:|---:|---:|")
    part = sys.argv[4] if len(sys.argv) > 4 else ""
    for name, (text, temperature) in TEXTS.items():
        if part not in name:
            continue
        # Once for the prefix cache: no timed answer begins with a prompt.
        ask(url, "off", text, temperature)
        ratios = []
        for number in range(rounds):
            both = ["off", policy][:: 1 if number % 2 else -1]
            runs = {each: ask(url, each, text, temperature) for each in both}
            (said, slow, plain), (guessed, fast, with_guesses) = runs["off"], runs[policy]
            assert said == guessed, f"{name}: another answer\n{said}\n{guessed}"
            ratios.append(slow / fast)
        steps, (fewer, drafted, right) = plain[0], with_guesses
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {name} | {steps:.0f} | {fewer:.0f} | {right:.0f} of {drafted:.0f} | {ratio} |", flush=True)


main()
