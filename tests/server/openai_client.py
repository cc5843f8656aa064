"""What the openai client sees: answers, streams, usage, logprobs, errors."""
import json
import sys
import time
import urllib.request

import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0, timeout=60)
SAYING = "The capital of France is Paris."
messages = [{"role": "user", "content": "What is the capital of France?"}]

assert [m.id for m in client.models.list()] == ["fable"]
assert client.models.retrieve("fable").id == "fable"

answer = client.chat.completions.create(model="fable", messages=messages, temperature=0)
assert answer.choices[0].message.content == SAYING
assert answer.choices[0].finish_reason == "stop"
assert answer.usage.prompt_tokens == 15
assert answer.usage.prompt_tokens_details.cached_tokens == 0

chunks = list(client.chat.completions.create(
    model="fable", messages=messages, stream=True, stream_options={"include_usage": True}))
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == SAYING
assert chunks[0].choices[0].delta.role == "assistant"
assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
assert chunks[-2].choices[0].finish_reason == "stop"
assert len({(c.id, c.created, c.model) for c in chunks}) == 1

answer = client.chat.completions.create(
    model="fable", messages=messages, logprobs=True, top_logprobs=2, max_completion_tokens=3)
content = answer.choices[0].logprobs.content
assert [len(t.top_logprobs) for t in content] == [2, 2, 2]
assert content[0].logprob == content[0].top_logprobs[0].logprob
assert bytes(content[0].bytes).decode() == content[0].token
assert answer.choices[0].finish_reason == "length"

answer = client.completions.create(model="fable", prompt="Once", logprobs=1, stop=" is")
assert answer.choices[0].text == "The capital of France"
assert len(answer.choices[0].logprobs.tokens) == len(answer.choices[0].logprobs.text_offset)
texts = [c.choices[0].text for c in client.completions.create(
    model="fable", prompt=[300, 301], stream=True)]
assert "".join(texts) == SAYING
many = client.completions.create(model="fable", prompt=["Once", "Twice"], echo=True, max_tokens=1)
assert [(c.index, c.text) for c in many.choices] == [(0, "OnceThe"), (1, "TwiceThe")]
scored = client.completions.create(
    model="fable", prompt=[300, 301, 302], echo=True, logprobs=1, max_tokens=0)
assert scored.choices[0].logprobs.token_logprobs[0] is None
assert len(scored.choices[0].logprobs.token_logprobs) == 3

# The client asks for base64 unless told otherwise, and decodes it.
packed = client.embeddings.create(model="fable", input=["one two", "three"])
plain = client.embeddings.create(model="fable", input=["one two", "three"], encoding_format="float")
assert [e.index for e in packed.data] == [0, 1]
assert [e.embedding for e in packed.data] == [e.embedding for e in plain.data]
assert abs(sum(v * v for v in packed.data[0].embedding) - 1) < 1e-5
assert packed.usage.prompt_tokens == plain.usage.prompt_tokens > 0

# Leaving a stream cancels its request.
with client.chat.completions.create(
        model="fable", messages=messages, stream=True, max_tokens=1500,
        extra_body={"ignore_eos": True}) as stream:
    next(iter(stream))
health = url.removesuffix("/v1") + "/health"
for _ in range(600):
    state = json.load(urllib.request.urlopen(health))
    if state["running"] == state["waiting"] == state["kv_blocks_used"] == 0:
        break
    time.sleep(0.1)
else:
    raise AssertionError(f"the request lives on: {state}")


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


chat = client.chat.completions.create
error = refused(openai.BadRequestError, lambda: chat(model="fable", messages=messages, top_p=3))
assert error.param == "top_p" and error.code == "invalid_value", error
error = refused(openai.NotFoundError, lambda: chat(model="gpt-4", messages=messages))
assert error.code == "model_not_found"
error = refused(openai.BadRequestError, lambda: client.completions.create(
    model="fable", prompt=[300] * 3000))
assert error.code == "context_length_exceeded"
error = refused(openai.BadRequestError, lambda: client.embeddings.create(
    model="fable", input="x", dimensions=7))
assert error.param == "dimensions"
error = refused(openai.BadRequestError, lambda: client.completions.create(
    model="fable", prompt="x", suffix="y"))
assert error.param == "suffix"
other = openai.OpenAI(base_url=url, api_key="wrong", max_retries=0)
assert refused(openai.AuthenticationError, lambda: other.models.list()).code == "invalid_api_key"
print("ok")
