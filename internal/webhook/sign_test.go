// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/webhook"
)

// standard is a receiver's signature check, written from the Standard Webhooks specification:
// HMAC-SHA256 over "id.timestamp.body", with the base64-decoded text after whsec_ as key. Any of
// the signatures "v1,…", separated by blanks, may match.
func standard(secret string, h http.Header, body []byte) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(h.Get("webhook-id") + "." + h.Get("webhook-timestamp") + "."))
	mac.Write(body)
	for one := range strings.FieldsSeq(h.Get("webhook-signature")) {
		version, text, _ := strings.Cut(one, ",")
		signature, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(signature, mac.Sum(nil)) {
			return nil
		}
	}
	return errors.New("no signature in webhook-signature is right")
}

// The example of the Standard Webhooks specification.
func TestSignStandard(t *testing.T) {
	h := webhook.Sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", nil, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got := h[webhook.HeaderStandardSignature][0]; got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" { //nolint:staticcheck // the spelling is the specification's
		t.Errorf("got %s", got)
	}
}

func TestSign(t *testing.T) {
	secret, old := webhook.NewSecret(), webhook.NewSecret()
	if !strings.HasPrefix(secret, "whsec_") || len(secret) != 6+44 || secret == old {
		t.Fatal("a secret of another form")
	}
	body := []byte(`{"id":"x"}`)
	flat := webhook.Sign(secret, []string{old}, "x", time.Unix(1_700_000_000, 0), body)
	h := http.Header{}
	for name, values := range flat {
		h.Set(name, values[0])
	}
	if verify(secret, h, body) != nil || verify(old, h, body) == nil {
		t.Error("X-Service-Signature is not made with the present secret alone")
	}
	if standard(secret, h, body) != nil || standard(old, h, body) != nil || standard(webhook.NewSecret(), h, body) == nil {
		t.Error("webhook-signature does not carry both")
	}
	h.Set("webhook-timestamp", "1700000001")
	if standard(secret, h, body) == nil {
		t.Error("webhook-signature does not cover the time")
	}
	if h.Get("X-Service-Timestamp") != "1700000000" || h.Get("X-Event-ID") != "x" || len(flat) != 6 {
		t.Errorf("headers %v", flat)
	}
}
