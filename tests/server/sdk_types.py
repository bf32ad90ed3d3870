# SPDX-License-Identifier: Apache-2.0
"""Values for the types of parameters that the official SDKs publish: for a TypedDict, one value for each member of it and of
all that it may hold, so that each member is sent once with nothing but what it needs around it.
"""
import typing
from typing import Literal, Union, get_args, get_origin, get_type_hints

import typing_extensions as extensions

WRAPPERS = (extensions.Required, extensions.NotRequired, extensions.Annotated, typing.Annotated, extensions.ReadOnly)
DEPTH = 3


def bare(kind):
    """The type within Required[..], Annotated[..] and aliases."""
    while True:
        if get_origin(kind) in WRAPPERS:
            kind = get_args(kind)[0]
        elif isinstance(kind, extensions.TypeAliasType):
            kind = kind.__value__
        else:
            return kind


def members(kind):
    """Name, type and whether it must be there, of each member of a TypedDict."""
    for name, value in get_type_hints(kind, include_extras=True).items():
        yield name, bare(value), get_origin(value) is extensions.Required


def label(kind):
    """How a TypedDict is told from others of a union: by its type, its role, or its name."""
    for name, value, _ in members(kind):
        if name in ("type", "role") and get_origin(value) is Literal:
            return get_args(value)[0]
    return kind.__name__


def least(kind, depth=0):
    """The smallest value of a type; None where there is none to be had."""
    kind = bare(kind)
    origin, args = get_origin(kind), get_args(kind)
    if extensions.is_typeddict(kind):
        found = {name: least(value, depth + 1) for name, value, must in members(kind) if must}
        return None if depth > DEPTH else found
    if origin is Literal:
        return args[-1]
    if origin is Union:
        return next((v for v in (least(a, depth) for a in args if a is not type(None)) if v is not None), None)
    if origin is dict:
        return {"a": least(args[1], depth + 1)}
    if origin is not None and args:
        return [v for v in [least(args[0], depth + 1)] if v is not None]
    return {str: "x", int: 1, float: 0.5, bool: True, object: {"a": 1}}.get(kind)


def values(kind, depth=0):
    """(where, value) for each member within a type: `where` is "" for the value itself."""
    kind = bare(kind)
    origin, args = get_origin(kind), get_args(kind)
    if depth > DEPTH:
        return
    if extensions.is_typeddict(kind):
        base, name_of = least(kind, depth), label(kind)
        for name, value, _ in members(kind):
            for where, inner in values(value, depth + 1):
                yield f"({name_of}).{name}{where}", {**base, name: inner}
    elif origin is Union:
        for a in args:
            if a is not type(None):
                yield from values(a, depth)
    elif origin is dict or origin is Literal or not args:
        value = least(kind, depth)
        if value is not None:
            yield "", value
    else:
        seen = False
        for where, inner in values(args[0], depth):
            seen = True
            yield where, [inner]
        if not seen:
            yield "", []
