/**
 * `npm run release`: makes what a release publishes, in a folder: the package, a bill of materials (CycloneDX) and checksums. It uses
 * only committed files, and publishes nothing.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'

const ROOT = resolve(import.meta.dirname, '..')
/** Puts the pinned Node first in npm's PATH. */
const env = { ...process.env, PATH: `${dirname(process.execPath)}${delimiter}${process.env.PATH}` }

interface Manifest {
  name: string
  version: string
  repository?: { type: string; url: string }
  devDependencies?: unknown
  workspaces?: unknown
}

interface Locked {
  version?: string
  dev?: boolean
  link?: boolean
  optionalDependencies?: object
}

interface Lockfile {
  packages: Record<string, Locked>
}

interface Bill {
  components: { name: string; version: string }[]
}

const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'release' },
    /** URL of the repository for the package, which npm's provenance requires. */
    repository: { type: 'string' },
    /** For a release without a tag and a date yet. */
    preview: { type: 'boolean', default: false },
  },
})
const out = resolve(values.out)
const checkout = mkdtempSync(join(tmpdir(), 'sallyport-release-'))
try {
  makeRelease()
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
} finally {
  rmSync(checkout, { recursive: true, force: true })
}

function makeRelease(): void {
  demandOurs(out)
  execFileSync('tar', ['-x', '-C', checkout], { input: run('git', ['archive', 'HEAD'], ROOT) })
  symlinkSync(join(ROOT, 'node_modules'), join(checkout, 'node_modules'))
  const manifest = readJson<Manifest>('package.json')
  if (!values.preview) checkRelease(manifest.version)
  if (values.repository !== undefined) {
    manifest.repository = { type: 'git', url: `git+${values.repository}.git` }
    writeFileSync(join(checkout, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  }
  rmSync(out, { recursive: true, force: true })
  mkdirSync(out, { recursive: true })
  run('npm', ['pack', '--silent', '--pack-destination', out], checkout)
  writeFileSync(join(out, `sallyport-${manifest.version}.cdx.json`), billOfMaterials(manifest))
  writeFileSync(join(out, 'SHA256SUMS'), readdirSync(out).sort().map(checksum).join(''))
  console.log(readFileSync(join(out, 'SHA256SUMS'), 'utf8').trimEnd())
}

/** The folder is made anew, so it must hold nothing but an earlier release. */
function demandOurs(folder: string): void {
  const names = existsSync(folder) ? readdirSync(folder) : []
  const other = names.find(name => !/^(?:SHA256SUMS|sallyport-[\w.-]+\.(?:tgz|cdx\.json))$/.test(name))
  demand(other === undefined, `${folder} contains ${other}, which no release has made: give another --out`)
}

/** Checks that the tag, the version and the changelog agree. */
function checkRelease(version: string): void {
  const tags = text(run('git', ['tag', '--points-at', 'HEAD'], ROOT)).split('\n')
  demand(tags.includes(`v${version}`), `HEAD has no tag v${version}: tag it, or use --preview`)
  const [, heading] = /^## (.*)$/m.exec(readFileSync(join(checkout, 'CHANGELOG.md'), 'utf8')) ?? []
  const isDated = heading?.startsWith(`[${version}] - `) === true && /\d{4}-\d{2}-\d{2}$/.test(heading)
  demand(isDated, `CHANGELOG.md begins with "${heading}", but should begin with "[${version}] - " and a date`)
}

/**
 * Lists what `npm install --omit=dev` installs. `npm sbom --omit dev` also leaves out packages that a development dependency needs,
 * too, so we give it a lockfile without development dependencies.
 */
function billOfMaterials(manifest: Manifest): string {
  const lock = readJson<Lockfile>('package-lock.json')
  /** The pinned Node is only for the scripts of a checkout. */
  const nodes = new Set(
    Object.keys(lock.packages['tools/node']!.optionalDependencies!).map(name => `node_modules/${name}`),
  )
  const packages = Object.entries(lock.packages).filter(
    ([path, { dev, link }]) => path.startsWith('node_modules/') && !nodes.has(path) && dev !== true && link !== true,
  )
  // npm uses the folder's name.
  const folder = join(checkout, manifest.name)
  mkdirSync(folder)
  const { devDependencies: _, workspaces: __, ...plain } = manifest
  const root = { ...lock.packages[''], devDependencies: undefined, workspaces: undefined }
  writeFileSync(join(folder, 'package.json'), JSON.stringify(plain))
  const pruned = { ...lock, packages: { '': root, ...Object.fromEntries(packages) } }
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(pruned))
  const bill = run('npm', ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only'], folder)
  const listed = new Set((JSON.parse(text(bill)) as Bill).components.map(({ name, version }) => `${name}@${version}`))
  for (const [path, { version }] of packages) {
    const key = `${path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)}@${version}`
    demand(listed.has(key), `the bill of materials lacks ${key}`)
  }
  return text(bill)
}

/** In the format of `sha256sum --check`. */
function checksum(file: string): string {
  return `${createHash('sha256')
    .update(readFileSync(join(out, file)))
    .digest('hex')}  ${file}\n`
}

function readJson<Content>(file: string): Content {
  return JSON.parse(readFileSync(join(checkout, file), 'utf8')) as Content
}

function run(program: string, args: string[], cwd: string): Buffer {
  return execFileSync(program, args, { cwd, env, maxBuffer: 256 * 1024 * 1024, stdio: ['ignore', 'pipe', 'inherit'] })
}

function text(bytes: Buffer): string {
  return bytes.toString('utf8')
}

function demand(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(message)
}
