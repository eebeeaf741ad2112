// SPDX-License-Identifier: Apache-2.0

// A receiver of webhooks: WEBHOOK_SECRET=whsec_… go run receiver.go
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
)

type event struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Timestamp string          `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// authentic reports whether the service signed these bytes.
func authentic(body []byte, signature, secret string) bool {
	mac := hmac.New(sha256.New, []byte(secret)) // the whole secret, whsec_ included
	mac.Write(body)
	want := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	return hmac.Equal([]byte(want), []byte(signature)) // in constant time
}

// handle is yours. An event may come twice: remember the ids that you handled.
func handle(e event) error {
	log.Println(e.Type, e.ID)
	return nil
}

func main() {
	secret := os.Getenv("WEBHOOK_SECRET")
	if secret == "" {
		log.Fatal("set WEBHOOK_SECRET")
	}
	http.HandleFunc("POST /hook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20)) // as it came, before any parsing
		if err != nil {
			http.Error(w, "the body did not arrive", http.StatusBadRequest)
			return
		}
		if !authentic(body, r.Header.Get("X-Service-Signature"), secret) {
			http.Error(w, "wrong signature", http.StatusUnauthorized)
			return
		}
		var e event
		if err := json.Unmarshal(body, &e); err != nil {
			http.Error(w, "not an event", http.StatusBadRequest)
			return
		}
		if err := handle(e); err != nil {
			http.Error(w, "please try again", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	port := os.Getenv("PORT")
	if port == "" {
		port = "3000"
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, nil))
}
