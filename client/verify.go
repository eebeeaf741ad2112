// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// WebhookTolerance is how far the time in a webhook request may be from
	// now: older ones may be repetitions by somebody else.
	WebhookTolerance = 5 * time.Minute
	// maxEvent bounds the body of a webhook request, in bytes.
	maxEvent = 4 << 20
)

// ErrNotAuthentic says that a webhook request does not come from the service,
// was changed on the way, or is too old.
var ErrNotAuthentic = errors.New("mailstead: this webhook request is not authentic")

// VerifyWebhook checks a webhook request by its header and its body, as it
// came, and returns the event. It goes by the Standard Webhooks signature,
// which covers the time as well, and takes the old secret as well as the new
// one for 24 hours after a rotation. Anything that can't be trusted is an
// [ErrNotAuthentic]. An event may come more than once: go by its ID.
func VerifyWebhook(h http.Header, body []byte, secret string) (*Event, error) {
	return verifyWebhook(h, body, secret, time.Now())
}

func verifyWebhook(h http.Header, body []byte, secret string, now time.Time) (*Event, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return nil, errors.New("mailstead: a webhook's secret looks like whsec_ and base64")
	}
	id, at := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" {
		return nil, fmt.Errorf("%w: it has no id or no time", ErrNotAuthentic)
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > WebhookTolerance || age < -WebhookTolerance {
		return nil, fmt.Errorf("%w: its time is not within %v of now", ErrNotAuthentic, WebhookTolerance)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.", id, at)
	_, _ = mac.Write(body)
	want, good := mac.Sum(nil), false
	for one := range strings.FieldsSeq(h.Get("webhook-signature")) {
		text, v1 := strings.CutPrefix(one, "v1,")
		got, err := base64.StdEncoding.DecodeString(text)
		good = v1 && err == nil && hmac.Equal(want, got) || good
	}
	if !good {
		return nil, fmt.Errorf("%w: the signature is another's", ErrNotAuthentic)
	}
	e := new(Event)
	if err := json.Unmarshal(body, e); err != nil {
		return nil, fmt.Errorf("mailstead: the body of the webhook request: %w", err)
	}
	return e, nil
}

// WebhookSigned reports whether the header X-Service-Signature fits the body
// and the secret. That signature does not cover the time: see [VerifyWebhook].
func WebhookSigned(h http.Header, body []byte, secret string) bool {
	if secret == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret)) // the whole of it, whsec_ included
	_, _ = mac.Write(body)
	return hmac.Equal([]byte("sha256="+hex.EncodeToString(mac.Sum(nil))), []byte(h.Get("X-Service-Signature")))
}

// WebhookHandler receives webhook requests: it reads and verifies each, and
// calls handle with the event. It answers 204 when handle returns nil, and 500
// otherwise, so that the event comes again.
func WebhookHandler(secret string, handle func(ctx context.Context, e *Event) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		e, err := VerifyWebhook(r.Header, body, secret)
		if errors.Is(err, ErrNotAuthentic) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err == nil {
			err = handle(r.Context(), e)
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
