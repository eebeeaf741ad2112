// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a delivery (interface specification, section 6), and those of Standard Webhooks.
const (
	HeaderSignature = "X-Service-Signature"
	HeaderEvent     = "X-Service-Event"
	HeaderID        = "X-Event-ID"
	HeaderTimestamp = "X-Service-Timestamp"

	HeaderStandardID        = "webhook-id"
	HeaderStandardTimestamp = "webhook-timestamp"
	HeaderStandardSignature = "webhook-signature"
)

// secretPrefix begins every secret.
const secretPrefix = "whsec_"

// secretBytes is the number of random bytes in a secret.
const secretBytes = 32

// NewSecret generates a secret: whsec_ and 32 random bytes in base64.
func NewSecret() string {
	raw := make([]byte, secretBytes)
	rand.Read(raw)
	return secretPrefix + base64.StdEncoding.EncodeToString(raw)
}

// Sign returns the headers that authenticate a body, for one attempt at the given time. They don't
// include X-Service-Event, which the caller knows. The key of X-Service-Signature is the whole
// secret as it was shown, and it covers only the body. The key of webhook-signature is the
// base64-decoded text after whsec_, and it covers id and time too. old are recently replaced
// secrets: they also sign webhook-signature.
func Sign(secret string, old []string, id string, at time.Time, body []byte) http.Header {
	unix := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, 0, 1+len(old))
	for _, s := range append([]string{secret}, old...) {
		mac := hmac.New(sha256.New, standardKey(s))
		mac.Write([]byte(id + "." + unix + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	// The map keys have the documented spelling, not the canonical one; HTTP ignores case.
	return http.Header{
		HeaderSignature:         {"sha256=" + hex.EncodeToString(mac.Sum(nil))},
		HeaderID:                {id},
		HeaderTimestamp:         {unix},
		HeaderStandardID:        {id},
		HeaderStandardTimestamp: {unix},
		HeaderStandardSignature: {strings.Join(signatures, " ")},
	}
}

// standardKey returns the key of a secret in Standard Webhooks. If the secret is not base64, as a
// developer may give to the forwarder, the key is its text.
func standardKey(secret string) []byte {
	text := strings.TrimPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return []byte(text)
	}
	return key
}
