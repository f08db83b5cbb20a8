/** A page in a real Chromium that a test drives, through the DevTools protocol (chromedevtools.github.io/devtools-protocol). */
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { WebSocket } from 'ws'
import { program } from './needs.ts'
import { until } from './until.ts'

type Json = Record<string, unknown>

export interface Screen {
  readonly width: number
  readonly height: number
  readonly dark?: boolean
  readonly mobile?: boolean
}

interface BrowserOptions {
  /** Names that resolve to 127.0.0.1, such as those of an attacker, or `*.` and a domain. */
  readonly names?: readonly string[]
  /** PEM of a server certificate that counts as trusted; no other error of a certificate is forgiven. */
  readonly certificate?: string
}

export class Browser {
  readonly #child: ChildProcess
  readonly #profile: string
  readonly #socket: WebSocket
  readonly #waiting = new Map<number, PromiseWithResolvers<Json>>()
  /** Sessions of the pages that are open. */
  readonly #open = new Set<unknown>()
  #last = 0
  /** What open pages said on their consoles, and what the browser says of them: errors, and breaches of a policy. */
  readonly complaints: string[] = []
  /** URLs that pages asked for, their own among them. */
  readonly requests: string[] = []

  static async open({ names = [], certificate }: BrowserOptions = {}): Promise<Browser> {
    const profile = mkdtempSync(join(tmpdir(), 'sallyport-browser-'))
    const flags = [
      ...['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--no-proxy-server', '--hide-scrollbars'],
      ...names.map(name => `--host-resolver-rules=MAP ${name} 127.0.0.1`),
      ...(certificate === undefined ? [] : [`--ignore-certificate-errors-spki-list=${keyHash(certificate)}`]),
      ...['--remote-debugging-port=0', `--user-data-dir=${profile}`, 'about:blank'],
    ]
    const child = spawn(program('chromium'), flags, { stdio: 'ignore', detached: true })
    const file = join(profile, 'DevToolsActivePort')
    await until(() => existsSync(file) && readFileSync(file, 'utf8').split('\n').length > 1, 'the browser listens')
    const [port, path] = readFileSync(file, 'utf8').split('\n')
    const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`)
    await once(socket, 'open')
    return new Browser(child, profile, socket)
  }

  private constructor(child: ChildProcess, profile: string, socket: WebSocket) {
    this.#child = child
    this.#profile = profile
    this.#socket = socket
    socket.on('message', data => this.#take(JSON.parse(String(data)) as Json))
  }

  async page(url: string, screen: Screen = { width: 1200, height: 800 }): Promise<BrowserPage> {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true })
    this.#open.add(sessionId)
    const page = new BrowserPage(this, String(targetId), String(sessionId))
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await page.send(`${domain}.enable`)
    await page.setScreen(screen)
    await page.go(url)
    return page
  }

  async send(method: string, params: object = {}, sessionId?: string): Promise<Json> {
    const id = ++this.#last
    const answer = Promise.withResolvers<Json>()
    this.#waiting.set(id, answer)
    this.#socket.send(JSON.stringify({ id, method, params, sessionId }))
    return await answer.promise
  }

  /** What it says while it closes, such as that its stream was cut, is nobody's complaint. */
  async closePage(targetId: string, sessionId: string): Promise<void> {
    this.#open.delete(sessionId)
    await this.send('Target.closeTarget', { targetId })
  }

  #take({ id, result, error, method, params, sessionId }: Json): void {
    const answer = this.#waiting.get(id as number)
    this.#waiting.delete(id as number)
    if (error !== undefined) answer?.reject(new Error(JSON.stringify(error)))
    else answer?.resolve((result ?? {}) as Json)
    if (!this.#open.has(sessionId)) return
    if (/^(Log\.entryAdded|Runtime\.(consoleAPICalled|exceptionThrown))$/.test(String(method)))
      this.complaints.push(JSON.stringify(params))
    if (method === 'Network.requestWillBeSent') this.requests.push((params as { request: { url: string } }).request.url)
  }

  async close(): Promise<void> {
    const ended = once(this.#child, 'exit')
    this.#socket.terminate()
    process.kill(-this.#child.pid!, 'SIGKILL')
    await ended
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5 })
  }
}

export class BrowserPage {
  readonly #browser: Browser
  readonly #target: string
  readonly #session: string

  constructor(browser: Browser, target: string, session: string) {
    this.#browser = browser
    this.#target = target
    this.#session = session
  }

  async close(): Promise<void> {
    await this.#browser.closePage(this.#target, this.#session)
  }

  send(method: string, params: object = {}): Promise<Json> {
    return this.#browser.send(method, params, this.#session)
  }

  async go(url: string): Promise<void> {
    await this.send('Page.navigate', { url })
  }

  async setScreen({ dark = false, mobile = false, ...size }: Screen): Promise<void> {
    await this.send('Emulation.setDeviceMetricsOverride', { ...size, deviceScaleFactor: 1, mobile })
    await this.setColours(dark ? 'dark' : 'light')
  }

  async setColours(scheme: 'light' | 'dark'): Promise<void> {
    await this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] })
  }

  /** The value of an expression, in the page; promises are waited for. */
  async value<T>(expression: string): Promise<T> {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    })
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails))
    return (result as { value: T }).value
  }

  /** Waits until the expression is true in the page. */
  async until(expression: string): Promise<void> {
    await until(() => this.value<boolean>(`Boolean(${expression})`).catch(() => false), expression)
  }

  async press(key: string): Promise<void> {
    const text = key.length === 1 ? key : undefined
    for (const type of ['keyDown', 'keyUp']) {
      await this.send('Input.dispatchKeyEvent', { type, key, ...(type === 'keyDown' && text ? { text } : {}) })
    }
  }

  /** Clicks the middle of the first element that matches. */
  async click(selector: string): Promise<void> {
    const middle = '({ x, y, width, height }) => ({ x: x + width / 2, y: y + height / 2 })'
    const box = `document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect()`
    const at = await this.value<Json>(`(${middle})(${box})`)
    for (const type of ['mousePressed', 'mouseReleased'])
      await this.send('Input.dispatchMouseEvent', { type, ...at, button: 'left', clickCount: 1 })
  }

  /** Writes the screen, or the first element that matches, as a PNG to the folder `PICTURES`, if there is one: a picture of docs/. */
  async keepPicture(name: string, selector?: string): Promise<void> {
    const folder = process.env.PICTURES
    if (folder === undefined) return
    const box = `(({ x, y, width, height }) => ({ x, y, width, height, scale: 1 }))`
    const element = `document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect()`
    const clip = selector === undefined ? undefined : await this.value<Json>(`${box}(${element})`)
    const { data } = await this.send('Page.captureScreenshot', { clip, captureBeyondViewport: clip !== undefined })
    writeFileSync(join(folder, name), Buffer.from(String(data), 'base64'))
  }
}

function keyHash(certificate: string): string {
  const key = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' })
  return createHash('sha256').update(key).digest('base64')
}
