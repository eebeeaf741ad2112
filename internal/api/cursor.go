// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"reflect"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// listKey identifies a list: its account, operation, path, filter and order.
type listKey [8]byte

// newListKey returns the key of the list that an operation returns for an input. The order of a
// filter's values does not matter.
func newListKey(account db.ID, operation string, in any) (k listKey) {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s\n", account, operation)
	hashParams(h, reflect.ValueOf(in).Elem())
	copy(k[:], h.Sum(nil))
	return k
}

func hashParams(h hash.Hash, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			hashParams(h, v.Field(i))
			continue
		}
		name := f.Tag.Get("path") + f.Tag.Get("query")
		if name == "" || name == "limit" || name == "after" || name == "before" || v.Field(i).IsZero() {
			continue
		}
		value := v.Field(i).Interface()
		if list, ok := value.([]string); ok {
			list = slices.Clone(list)
			slices.Sort(list)
			value = slices.Compact(list)
		}
		fmt.Fprintf(h, "%s %#v\n", name, value) // prints maps in the order of their keys
	}
}

// cursorVersion is the first byte of a cursor.
const cursorVersion = 1

// formatCursor returns the text of a position in a list. It is not secret, and needs no signature:
// a position selects only among the entries that the key may see.
func formatCursor(k listKey, position int64) string {
	b := append([]byte{cursorVersion}, k[:]...)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(b, uint64(position))) //nolint:gosec // positions are positive
}

// parseCursor parses a cursor. ok reports whether the text is one.
func parseCursor(text string) (k listKey, position int64, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != 1+len(k)+8 || b[0] != cursorVersion {
		return k, 0, false
	}
	copy(k[:], b[1:])
	position = int64(binary.BigEndian.Uint64(b[1+len(k):])) //nolint:gosec // checked below
	return k, position, position > 0
}
