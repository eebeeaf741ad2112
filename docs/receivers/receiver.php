<?php
// SPDX-License-Identifier: Apache-2.0

// A receiver of webhooks: WEBHOOK_SECRET=whsec_… php -S 127.0.0.1:3000 receiver.php
declare(strict_types=1);

// authentic tells whether the service signed these bytes.
function authentic(string $body, string $signature, string $secret): bool
{
    $want = 'sha256=' . hash_hmac('sha256', $body, $secret); // the whole secret, whsec_ included
    return hash_equals($want, $signature); // in constant time
}

// handle is yours. An event may come twice: remember the ids that you handled.
function handle(array $event): void
{
    error_log($event['type'] . ' ' . $event['id']);
}

$secret = getenv('WEBHOOK_SECRET');
if ($secret === false || $secret === '') {
    http_response_code(500);
    exit('set WEBHOOK_SECRET');
}
if ($_SERVER['REQUEST_METHOD'] !== 'POST') {
    http_response_code(405);
    exit;
}
$body = file_get_contents('php://input'); // as it came, before any parsing
if (!authentic($body, $_SERVER['HTTP_X_SERVICE_SIGNATURE'] ?? '', $secret)) {
    http_response_code(401);
    exit;
}
try {
    handle(json_decode($body, true, 64, JSON_THROW_ON_ERROR));
    http_response_code(204);
} catch (Throwable $error) {
    error_log((string) $error);
    http_response_code(500); // it comes again
}
