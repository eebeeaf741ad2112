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
	// WebhookTolerance is the maximum difference between the time in a webhook request and now:
	// older requests may be replayed by somebody else.
	WebhookTolerance = 5 * time.Minute
	// maxEvent is the limit for the body of a webhook request, in bytes.
	maxEvent = 4 << 20
)

// ErrNotAuthentic reports that a webhook request doesn't come from the service, was modified, or is
// too old.
var ErrNotAuthentic = errors.New("mailstead: this webhook request is not authentic")

// VerifyWebhook verifies a webhook request by its header and its unmodified body, and returns the
// event. It checks the Standard Webhooks signature, which includes the time. It accepts both the
// old and the new secret for 24 hours after a rotation. For an untrusted request, it returns
// [ErrNotAuthentic]. An event may arrive more than once: check its ID.
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

// WebhookSigned reports whether the header X-Service-Signature matches the body and the secret.
// That signature doesn't include the time: see [VerifyWebhook].
func WebhookSigned(h http.Header, body []byte, secret string) bool {
	if secret == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret)) // all of it, including whsec_
	_, _ = mac.Write(body)
	return hmac.Equal([]byte("sha256="+hex.EncodeToString(mac.Sum(nil))), []byte(h.Get("X-Service-Signature")))
}

// WebhookHandler receives webhook requests: it reads and verifies each, and calls handle with the
// event. It responds 204 if handle returns nil, and otherwise 500, so that the service retries.
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
