// @module-tag slow
/** What a release publishes, built as a maintainer builds it. */
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'

const ROOT = resolve(import.meta.dirname, '../..')
const run = promisify(execFile)
const release = (...args: string[]) => run(process.execPath, ['scripts/release.ts', ...args], { cwd: ROOT })
const manifest = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
  version: string
  scripts: Record<string, string>
  dependencies: object
  optionalDependencies: object
  devDependencies: object
}

const { stdout: tags } = await run('git', ['tag', '--points-at', 'HEAD'], { cwd: ROOT })
const isTagged = tags.split('\n').includes(`v${manifest.version}`)

interface Component {
  name: string
  version: string
  purl: string
  hashes: { alg: string }[]
  licenses?: unknown[]
}

let out: string
let bill: { bomFormat: string; specVersion: string; metadata: { component: Component }; components: Component[] }

beforeAll(async () => {
  out = join(await mkdtemp(join(tmpdir(), 'sallyport-released-')), 'out')
  await release('--preview', '--out', out, '--repository', 'https://example.com/some/where')
  bill = JSON.parse(await readFile(join(out, `sallyport-${manifest.version}.cdx.json`), 'utf8'))
})
afterAll(() => rm(join(out, '..'), { recursive: true }))

describe('a release', () => {
  it('consists of a package, a bill of materials, and checksums that match', async () => {
    const files = [`sallyport-${manifest.version}.cdx.json`, `sallyport-${manifest.version}.tgz`]
    expect(await readdir(out)).toEqual(['SHA256SUMS', ...files])
    const { stdout } = await run('sha256sum', ['--check', 'SHA256SUMS'], { cwd: out })
    expect(stdout).toBe(files.map(file => `${file}: OK\n`).join(''))
  })

  it('its package names the repository that it was built from, as provenance requires', async () => {
    const { stdout } = await run('tar', ['-xzOf', `sallyport-${manifest.version}.tgz`, 'package/package.json'], {
      cwd: out,
    })
    expect(JSON.parse(stdout)).toMatchObject({
      version: manifest.version,
      repository: { type: 'git', url: 'git+https://example.com/some/where.git' },
    })
  })

  it('its bill lists what an installation brings, each with a hash, and nothing of ours alone', () => {
    expect([bill.bomFormat, bill.metadata.component.name]).toEqual(['CycloneDX', 'sallyport'])
    const names = bill.components.map(({ name }) => name)
    expect(names).toEqual(
      expect.arrayContaining(Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies })),
    )
    // What both need is easily left out: `npm sbom --omit dev` does.
    expect(names).toEqual(expect.arrayContaining(['pino-std-serializers', 'semver', 'pg-protocol']))
    // What the metrics bring is an optional peer of ours, too, and our tests need it.
    expect(names.filter(name => Object.keys(manifest.devDependencies).includes(name))).toEqual(['@opentelemetry/api'])
    for (const { purl, version, hashes } of bill.components) {
      expect(purl).toMatch(/^pkg:npm\//)
      expect(purl.endsWith(`@${version}`)).toBe(true)
      expect(hashes.map(({ alg }) => alg)).toEqual(['SHA-512'])
    }
    expect(JSON.stringify(bill)).not.toContain('resolved')
  })

  it('is what the commands in CONTRIBUTING.md and the workflow publish', async () => {
    const texts = ['CONTRIBUTING.md', '.github/workflows/release.yml'].map(name => readFile(join(ROOT, name), 'utf8'))
    const commands = (await Promise.all(texts)).map(text => /npm publish [^`\n]*/.exec(text)![0])
    const cwd = await mkdtemp(join(tmpdir(), 'sallyport-published-'))
    await symlink(out, join(cwd, 'release'))
    const registry = { npm_config_registry: 'http://127.0.0.1:9', npm_config_fetch_retries: '0' }
    // `npm test --silent` hands its level down.
    const env = { ...process.env, ...registry, npm_config_loglevel: 'notice' }
    for (const command of commands) {
      const { stdout } = await run('sh', ['-c', `${command} --dry-run`], { cwd, env })
      expect(stdout).toBe(`+ sallyport@${manifest.version}\n`)
    }
    await rm(cwd, { recursive: true })
  })

  it('is made anew, but never in a folder that holds anything else', async () => {
    const refused = release('--preview', '--out', join(out, '..'))
    await expect(refused).rejects.toMatchObject({
      code: 1,
      stderr: `${join(out, '..')} contains out, which no release has made: give another --out\n`,
    })
    expect(await readdir(out)).toHaveLength(3)
  })

  it('has one version, wherever that is written', async () => {
    const { stdout } = await run('git', ['ls-files', '-z', 'README.md', 'Dockerfile', 'deploy', 'docs/*.md'], {
      cwd: ROOT,
    })
    const files = stdout.split('\0').filter(name => name !== '')
    const texts = await Promise.all(files.map(name => readFile(join(ROOT, name), 'utf8')))
    const found = texts.flatMap(text => [...text.matchAll(/(?:sallyport[:-]|newTag: )(\d+\.\d+\.\d+)/g)])
    expect(found.length).toBeGreaterThan(10)
    expect(new Set(found.map(([, version]) => version))).toEqual(new Set([manifest.version]))
  })

  // The workflow runs the tests on the tag, where a release is made.
  it.skipIf(isTagged)('is refused without its tag', async () => {
    const refused = release('--out', join(out, 'none'))
    await expect(refused).rejects.toMatchObject({
      code: 1,
      stderr: `HEAD has no tag v${manifest.version}: tag it, or use --preview\n`,
    })
  })
})

describe('the workflow of a release', async () => {
  const { jobs } = parse(await readFile(join(ROOT, '.github/workflows/release.yml'), 'utf8')) as {
    jobs: Record<string, { steps: { id?: string; run?: string; with?: { tags?: string } }[] }>
  }

  it('publishes the package, the image and the chart', () => {
    expect(Object.keys(jobs)).toEqual(['check', 'package', 'image', 'chart'])
  })

  it('gives the image the tag that the chart asks for', async () => {
    const { steps } = jobs.image!
    expect(steps.find(step => step.with?.tags)!.with!.tags).toMatch(/:\$\{\{ steps\.tag\.outputs\.version }}$/)
    const tag = steps.find(({ id }) => id === 'tag')!.run!.replace('>> "$GITHUB_OUTPUT"', '')
    const { stdout } = await run('sh', ['-ec', tag], { env: { GITHUB_REF_NAME: `v${manifest.version}` } })
    const values = parse(await readFile(join(ROOT, 'deploy/helm/sallyport/values.yaml'), 'utf8'))
    expect(stdout).toBe(`version=${values.image.tag}\n`)
  })

  it.each(['image', 'chart'])('names the %s in lower case, whatever the repository is called', async job => {
    const name = jobs[job]!.steps.find(step => step.run?.includes('IMAGE='))!.run!.replace('>> "$GITHUB_ENV"', '')
    const { stdout } = await run('bash', ['-ec', name], { env: { GITHUB_REPOSITORY: 'Acme/Sallyport' } })
    expect(stdout).toBe('IMAGE=ghcr.io/acme/sallyport\n')
  })

  it('runs scripts that exist', () => {
    const lines = Object.values(jobs).flatMap(({ steps }) => steps.flatMap(step => step.run?.split('\n') ?? []))
    const scripts = lines.flatMap(line => [...line.matchAll(/npm run (\S+)/g)].map(([, name]) => name!))
    expect(scripts).toContain('release')
    expect(scripts.filter(name => !Object.hasOwn(manifest.scripts, name))).toEqual([])
  })
})
