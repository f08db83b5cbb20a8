import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClient } from '@redis/client'
import { program } from './needs.ts'
import { lastingPort } from './ports.ts'
import type { Secrets } from './secrets.ts'

export interface RedisProgramOptions {
  /** Listens with TLS alone. */
  readonly tls?: Pick<Secrets, 'server' | 'ca'>
  /** A user of the access control list who may do what the directory needs, and nothing else; `default` is off. */
  readonly user?: { readonly name: string; readonly password: string; readonly rights?: string }
  /** More lines of its configuration. */
  readonly lines?: readonly string[]
  /** Runs as a Sentinel. */
  readonly sentinel?: boolean
}

/** What a user of the directory has to be allowed; docs/scaling.md says the same. */
export const DIRECTORY_RIGHTS =
  '~{sallyport}:* &sallyport:* +hello +auth +client|setname +select +ping +script|load +evalsha +subscribe +unsubscribe ' +
  '+hget +hset +hdel +hgetall +del +pexpire +publish +time'

/** A real Redis of the test's own, without persistence: what is restarted is empty. */
export class Redis {
  readonly port: number
  readonly url: string
  readonly #folder: string
  readonly #sentinel: boolean
  #child: ChildProcess | undefined

  static async start(options: RedisProgramOptions = {}): Promise<Redis> {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-redis-'))
    const redis = new Redis(await lastingPort(), folder, options)
    await redis.#write(options)
    await redis.start()
    return redis
  }

  private constructor(port: number, folder: string, { tls, sentinel = false }: RedisProgramOptions) {
    this.port = port
    this.url = `${tls === undefined ? 'redis' : 'rediss'}://127.0.0.1:${port}`
    this.#folder = folder
    this.#sentinel = sentinel
  }

  async #write({ tls, user, lines: more = [] }: RedisProgramOptions): Promise<void> {
    const at = (name: string) => join(this.#folder, name)
    const lines = ['bind 127.0.0.1', `dir ${this.#folder}`, ...more]
    if (!this.#sentinel) lines.push('save ""', 'appendonly no')
    if (tls === undefined) lines.push(`port ${this.port}`)
    else {
      await writeFile(at('cert.pem'), tls.server.cert)
      await writeFile(at('key.pem'), tls.server.key, { mode: 0o600 })
      await writeFile(at('ca.pem'), tls.ca)
      lines.push('port 0', `tls-port ${this.port}`, `tls-cert-file ${at('cert.pem')}`, `tls-key-file ${at('key.pem')}`)
      lines.push(`tls-ca-cert-file ${at('ca.pem')}`, 'tls-auth-clients no')
    }
    if (user !== undefined)
      lines.push('user default off', `user ${user.name} on ">${user.password}" ${user.rights ?? DIRECTORY_RIGHTS}`)
    await writeFile(at('redis.conf'), lines.join('\n'))
  }

  /** Starts it again, empty. */
  async start(): Promise<void> {
    const child = spawn(
      program('redis-server'),
      [join(this.#folder, 'redis.conf'), ...(this.#sentinel ? ['--sentinel'] : [])],
      { stdio: 'ignore' },
    )
    this.#child = child
    while (!(await this.#answers())) if (child.exitCode !== null) throw new Error(`Redis ended with ${child.exitCode}`)
  }

  async #answers(): Promise<boolean> {
    const socket = connect(this.port, '127.0.0.1')
    const open = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ]).catch(() => false)
    socket.destroy()
    return open
  }

  async kill(): Promise<void> {
    const child = this.#child
    this.#child = undefined
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }

  /** It answers nothing, but keeps its connections. */
  pause(): void {
    this.#child?.kill('SIGSTOP')
  }

  resume(): void {
    this.#child?.kill('SIGCONT')
  }

  /** As if the directory had been there for long: a young one grants nothing for a while. */
  async age(prefix = 'sallyport'): Promise<void> {
    await this.command('HSET', `{${prefix}}:replicas`, '@born', '0')
  }

  /** One command, as the default user. */
  async command(...args: (string | Buffer)[]): Promise<unknown> {
    const client = createClient({ url: this.url, RESP: 3 })
    client.on('error', () => {})
    await client.connect()
    try {
      return await client.sendCommand(args)
    } finally {
      client.destroy()
    }
  }

  async stop(): Promise<void> {
    await this.kill()
    await rm(this.#folder, { recursive: true, force: true })
  }
}
