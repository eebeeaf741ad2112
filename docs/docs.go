// SPDX-License-Identifier: Apache-2.0

// Package docs holds the guides that the service shows at /docs.
package docs

import "embed"

// Guides are the texts in Markdown.
//
//go:embed dns.md mailboxes.md operating.md receiving.md sending.md webhooks.md
var Guides embed.FS
