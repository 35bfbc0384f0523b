// A parsed chat template. `next` links the nodes of a list (statements, arguments, elements); the
// kind decides the meaning of the children a to d.
#pragma once
#include "engine/jinja/value.h"

struct jinja_builtin;

enum jinja_node_kind {
    // expressions
    JINJA_N_CONST, // value
    JINJA_N_NAME,  // name
    JINJA_N_LIST,  // a: elements
    JINJA_N_TUPLE, // a: elements
    JINJA_N_DICT,  // a: JINJA_N_PAIRs
    JINJA_N_PAIR,  // a: key, b: value
    JINJA_N_COND,  // a if b else c, c may be NULL
    JINJA_N_AND,
    JINJA_N_OR,
    JINJA_N_NOT,     // a
    JINJA_N_SIGN,    // op a
    JINJA_N_BINARY,  // a op b
    JINJA_N_CONCAT,  // a: operands of ~
    JINJA_N_COMPARE, // a, then b: JINJA_N_OPERANDs
    JINJA_N_OPERAND, // op a
    JINJA_N_ATTR,    // a.name
    JINJA_N_ITEM,    // a[b]
    JINJA_N_SLICE,   // the b of a JINJA_N_ITEM: a:b:c, each may be NULL
    JINJA_N_CALL,    // a(b: JINJA_N_ARGs)
    JINJA_N_ARG,     // name=a, or a
    JINJA_N_FILTER,  // a|builtin(b); a is NULL in a filter block
    JINJA_N_TEST,    // a is builtin(b)
    // statements
    JINJA_N_PRINT,     // a: expressions
    JINJA_N_IF,        // if a: b, otherwise c (statements)
    JINJA_N_FOR,       // for a in b if `filter`: c, else d
    JINJA_N_SET,       // a = b
    JINJA_N_SET_BLOCK, // a = the output of c, filtered by b if there are filters
    JINJA_N_MACRO,     // name(a: JINJA_N_ARGs; an ARG without a value has no default): c
    JINJA_N_CALLER,    // call block: b is the call, a the parameters, c the body
    JINJA_N_APPLY,     // filter block: the output of c, filtered by b
    JINJA_N_WITH,      // a: JINJA_N_SETs, then c
    JINJA_N_BREAK,
    JINJA_N_CONTINUE
};
enum { JINJA_OP_IN = 1, JINJA_OP_NOT_IN = 2 }; // beside the lexer's operators

struct jinja_node {
    enum jinja_node_kind kind;
    int line, op;
    struct jinja_node *next, *a, *b, *c, *d, *filter;
    struct jinja_string name;
    struct jinja_value value;
    const struct jinja_builtin *builtin;
};
