// SPDX-License-Identifier: Apache-2.0

package client

// VerifyWebhookAt is VerifyWebhook at a given time.
var VerifyWebhookAt = verifyWebhook
