// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"strconv"
	"strings"
)

// maxPayload is the maximum size of one NOTIFY in bytes: PostgreSQL accepts less than 8,000.
const maxPayload = 7999

// encode returns keys as texts of at most 7,999 bytes, each of which fits one NOTIFY: the letters
// and the ids in base 36, separated by commas.
func encode(keys []Key) []string {
	var texts []string
	var b []byte
	for _, key := range keys {
		start := len(b)
		if start > 0 {
			b = append(b, ',')
		}
		b = append(b, byte(key.Kind))
		b = strconv.AppendInt(b, key.ID, 36)
		if len(b) > maxPayload {
			texts = append(texts, string(b[:start]))
			b = append(b[:0], b[start+1:]...)
		}
	}
	if len(b) > 0 {
		texts = append(texts, string(b))
	}
	return texts
}

// decode parses a text from encode. It also returns kinds that this release does not know, as they
// have no subscriptions.
func decode(text string) ([]Key, error) {
	if len(text) > maxPayload {
		return nil, errors.New("notify: payload too long")
	}
	if text == "" {
		return nil, nil
	}
	keys := make([]Key, 0, strings.Count(text, ",")+1)
	for part := range strings.SplitSeq(text, ",") {
		if len(part) < 2 || part[0] < 'a' || part[0] > 'z' {
			return nil, errors.New("notify: malformed payload")
		}
		id, err := strconv.ParseInt(part[1:], 36, 64)
		if err != nil {
			return nil, errors.New("notify: malformed id in payload")
		}
		keys = append(keys, Key{Kind(part[0]), id})
	}
	return keys, nil
}
