package jinja

import (
	"bytes"
	"encoding/json"
)

// Object is a JSON object that keeps the order of its keys, as Python's dict
// does. It is what messages, tools and their parts are made of. An Object that
// templates read at the same time must not be written.
type Object struct {
	keys, vals []any
	// index finds a key's place by its hash key; it is made with the
	// indexFrom-th key, below that a scan is faster.
	index map[any]int
}

const indexFrom = 9

// NewObject is an Object of the given keys and values: key, value, key, value. It
// panics on an odd number or a key that is no string.
func NewObject(pairs ...any) *Object {
	if len(pairs)%2 != 0 {
		panic("template: NewObject: a key without a value")
	}
	o := &Object{}
	for i := 0; i < len(pairs); i += 2 {
		o.Set(pairs[i].(string), pairs[i+1])
	}
	return o
}

// Len is the number of keys.
func (o *Object) Len() int { return len(o.keys) }

// Get is the value of key, and whether there is one.
func (o *Object) Get(key string) (any, bool) { return o.get(key) }

// Set gives key a value. A new key goes to the end, one that is there keeps its
// place.
func (o *Object) Set(key string, value any) { o.set(key, key, value) }

// Keys are the keys in their order. Keys that are no strings, which only a
// template can make, are left out.
func (o *Object) Keys() []string {
	keys := make([]string, 0, len(o.keys))
	for _, k := range o.keys {
		if s, ok := k.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys
}

// MarshalJSON writes the keys in their order, those that are strings.
func (o *Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i, k := range o.Keys() {
		b.WriteByte("{,"[min(i, 1)])
		if err := e.Encode(k); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		v, _ := o.Get(k)
		if err := e.Encode(v); err != nil {
			return nil, err
		}
	}
	if b.Len() == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// find is the place of the key with hash key h, -1 where there is none.
func (o *Object) find(h any) int {
	if o.index != nil {
		if i, ok := o.index[h]; ok {
			return i
		}
		return -1
	}
	for i, k := range o.keys {
		if s, ok := k.(string); ok {
			if s == h {
				return i
			}
		} else if kh, _ := hashKey(k); kh == h {
			return i
		}
	}
	return -1
}

// get is the value under the hash key h.
func (o *Object) get(h any) (any, bool) {
	if i := o.find(h); i >= 0 {
		return o.vals[i], true
	}
	return nil, false
}

// set stores value under key, whose hash key is h.
func (o *Object) set(h, key, value any) {
	if i := o.find(h); i >= 0 {
		o.vals[i] = value
		return
	}
	o.keys, o.vals = append(o.keys, key), append(o.vals, value)
	if o.index != nil {
		o.index[h] = len(o.keys) - 1
	} else if len(o.keys) >= indexFrom {
		o.index = make(map[any]int, 2*len(o.keys))
		for i, k := range o.keys {
			kh, _ := hashKey(k)
			o.index[kh] = i
		}
	}
}

// clone is a copy of o's own keys and values; what the values hold is shared.
func (o *Object) clone() *Object {
	c := &Object{}
	for i, k := range o.keys {
		h, _ := hashKey(k)
		c.set(h, k, o.vals[i])
	}
	return c
}
