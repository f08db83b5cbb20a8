/** A real browser, without a window, that trusts one certificate and finds every name under a domain on loopback. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { program } from './needs.ts'

export interface ChromiumOptions {
  /** PEM of the server certificate that counts as trusted; no other error of a certificate is forgiven. */
  readonly certificate: string
  /** Names under it resolve to 127.0.0.1. */
  readonly domain: string
}

/** Opens `url`; `close` ends the browser and removes its profile. */
export async function openChromium(url: string, options: ChromiumOptions): Promise<{ close(): Promise<void> }> {
  const profile = await mkdtemp(join(tmpdir(), 'sallyport-chromium-'))
  const spki = new X509Certificate(options.certificate).publicKey.export({ type: 'spki', format: 'der' })
  const browser = spawn(
    program('chromium'),
    [
      ...['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--no-proxy-server'],
      `--user-data-dir=${profile}`,
      `--host-resolver-rules=MAP *.${options.domain} 127.0.0.1`,
      `--ignore-certificate-errors-spki-list=${createHash('sha256').update(spki).digest('base64')}`,
      url,
    ],
    { stdio: 'ignore', detached: true },
  )
  return {
    close: async () => {
      await end(browser)
      await rm(profile, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

/** The browser and the processes that it made: they are one group. */
async function end(browser: ChildProcess): Promise<void> {
  if (browser.pid === undefined || browser.exitCode !== null || browser.signalCode !== null) return
  const ended = once(browser, 'exit')
  process.kill(-browser.pid, 'SIGKILL')
  await ended
}
