import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// No test runs by the settings of the shell that started it, nor does a process that it starts.
for (const name of Object.keys(process.env)) if (name.startsWith('SALLYPORT_')) delete process.env[name]

// The many commands that tests start share what V8 compiled, which is most of their start.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('node_modules/.cache/node-compile', import.meta.url))

/** Suites that load, fuzz or break things: after the others, so that they disturb nobody. */
const HEAVY = ['abuse', 'chaos', 'differential', 'fuzz', 'lifecycle', 'load-tests', 'replicas', 'suites', 'walk'].map(
  folder => `test/${folder}/**/*.test.ts`,
)

/** In their full sizes they would disturb each other as well. */
const heavyWorkers = process.env.TEST_SHORT === '1' ? 2 : 1

/** Ends what hangs, on a machine ten times slower than ours as well: a test has a limit of its own only where it needs more. */
const LIMIT_MS = 300_000

export default defineConfig({
  test: {
    projects: [
      {
        extends: true,
        test: { name: 'light', include: ['test/**/*.test.ts'], exclude: HEAVY, sequence: { groupOrder: 0 } },
      },
      { extends: true, test: { name: 'heavy', include: HEAVY, maxWorkers: heavyWorkers, sequence: { groupOrder: 1 } } },
    ],
    tags: [{ name: 'slow', description: 'takes seconds: left to `npm test -- --all`, CI=true, and a run of its file' }],
    setupFiles: 'test/support/strict-subset.ts',
    pool: 'forks',
    // Tests wait more than they work.
    maxWorkers: Math.max(6, availableParallelism()),
    testTimeout: LIMIT_MS,
    hookTimeout: LIMIT_MS,
    expect: { poll: { timeout: 120_000 } },
    teardownTimeout: 5_000,
    // A test that needs a fixed place in the order, or shares state with its neighbour, is a defect.
    restoreMocks: true,
    unstubEnvs: true,
    coverage: {
      provider: 'v8',
      include: [
        'protocol/**/*.ts',
        'server/**/*.ts',
        'client/**/*.ts',
        'router/**/*.ts',
        'certs/**/*.ts',
        'tracing/**/*.ts',
        'admin/**/*.ts',
      ],
      reporter: ['text-summary', 'html', 'json-summary'],
      reportsDirectory: 'coverage',
    },
  },
})
