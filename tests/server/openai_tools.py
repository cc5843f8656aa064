"""The openai client: tools and structured output, on whatever model the server has."""
import json
import sys
from typing import Literal

from openai import BadRequestError, OpenAI
from pydantic import BaseModel, Field

client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
model = client.models.list().data[0].id
few = sys.argv[2] == "few"


class Pet(BaseModel):
    kind: Literal["cat", "dog"]
    age: int = Field(ge=0, le=30)
    names: list[Literal["Tom", "Rex"]] = Field(max_length=2)


schema = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "names": {"type": "array", "items": {"enum": ["Tom", "Rex"]}, "maxItems": 2},
    },
    "required": ["kind", "age", "names"],
    "additionalProperties": False,
}
form = {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": schema}}
ask = [{"role": "user", "content": "Tell me of a pet."}]

# json_schema, whole and streamed, at any temperature: the same seed, the same answer.
for temperature in (1,) if few else (0, 2):
    common = dict(model=model, messages=ask, response_format=form, seed=7, temperature=temperature,
                  max_tokens=200)
    answer = client.chat.completions.create(**common, n=1 if few else 2)
    for choice in answer.choices:
        assert choice.finish_reason == "stop", choice
        pet = Pet.model_validate_json(choice.message.content)
        assert 0 <= pet.age <= 30 and len(pet.names) <= 2, pet
    stream = client.chat.completions.create(**common, stream=True)
    text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert text == answer.choices[0].message.content, (text, answer.choices[0])

# The client's own way to a typed answer.
if not few:
    parsed = client.chat.completions.parse(model=model, messages=ask, response_format=Pet,
                                           temperature=0, max_tokens=200)
    if parsed.choices[0].finish_reason == "stop":
        assert parsed.choices[0].message.parsed.kind in ("cat", "dog")

# Tools: forced, so that any model calls.
tools = [{
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]},
                           "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}]
ask = [{"role": "user", "content": "What is the weather in Paris?"}]
named = {"type": "function", "function": {"name": "get_weather"}}
for choice, reason in ((named, "stop"),) if few else (("required", "tool_calls"), (named, "stop")):
    common = dict(model=model, messages=ask, tools=tools, tool_choice=choice, seed=1,
                  parallel_tool_calls=False, max_tokens=200)
    answer = client.chat.completions.create(**common).choices[0]
    assert answer.finish_reason == reason, answer
    call = answer.message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert call.function.name == "get_weather" and arguments["city"] in ("Paris", "Rome")
    assert 1 <= arguments["days"] <= 7
    # Streamed deltas add up to the same call.
    name, text, ids = "", "", []
    for chunk in client.chat.completions.create(**common, stream=True):
        for delta in chunk.choices[0].delta.tool_calls or []:
            name += delta.function.name or ""
            text += delta.function.arguments or ""
            ids += [delta.id] if delta.id else []
    assert (name, text, len(ids)) == ("get_weather", call.function.arguments, 1)

# The result goes back, and the model answers.
ask += [answer.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 24 degrees."}]
last = client.chat.completions.create(model=model, messages=ask, tools=tools, tool_choice="none",
                                      max_tokens=8)
assert last.choices[0].message.content is not None

try:
    client.chat.completions.create(
        model=model, messages=ask[:1],
        response_format={"type": "json_schema",
                         "json_schema": {"name": "x", "schema": {"$ref": "https://example.org/x"}}})
    raise SystemExit("a remote schema was taken")
except BadRequestError as error:
    assert error.param == "response_format.json_schema.schema", error
print("ok")
