import { expect, test } from 'vitest'
import { explainListenError } from '../../../cli/service/listen-error.ts'

test.each([
  ['EACCES', '--public.listen 0.0.0.0:443: permission denied; ports below 1024 need root or a systemd socket'],
  ['EADDRINUSE', '--public.listen 0.0.0.0:443 is in use by another process'],
  ['EADDRNOTAVAIL', '--public.listen 0.0.0.0:443: this machine has no such address'],
])('%s names the flag, and what helps', (code, message) => {
  const error = Object.assign(new Error('listen'), { code })
  expect((explainListenError(error, 'public.listen', '0.0.0.0:443') as Error).message).toContain(message)
})
