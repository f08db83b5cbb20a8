import { expect, test } from 'vitest'
import { EXIT } from '../../../cli/failure.ts'
import { explainListenError } from '../../../cli/service/listen-error.ts'

test.each([
  ['EACCES', '--public.listen 0.0.0.0:443: permission denied; ports below 1024 need root or a systemd socket'],
  ['EADDRINUSE', '--public.listen 0.0.0.0:443 is in use by another process'],
  ['EADDRNOTAVAIL', '--public.listen 0.0.0.0:443: this machine has no such address'],
])('%s names the flag, and what helps', (code, message) => {
  const error = Object.assign(new Error('listen'), { code })
  expect((explainListenError(error, 'public.listen', '0.0.0.0:443') as Error).message).toContain(message)
})

test('a socket that was given and cannot be used is a configuration error', () => {
  const error = new TypeError('the socket 3 that was given is not one of TCP')
  expect(explainListenError(error, 'admin.listen', '127.0.0.1:9090')).toMatchObject({
    message: error.message,
    exitCode: EXIT.configuration,
  })
})
