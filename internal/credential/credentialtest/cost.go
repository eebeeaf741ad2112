// SPDX-License-Identifier: Apache-2.0

// Package credentialtest provides tests with password hashes that take almost no time.
package credentialtest

import "github.com/mailstead/mailstead/internal/credential"

// Cost is far too low for passwords that must stay secret.
var Cost = credential.Cost{Memory: 64, Passes: 1}
