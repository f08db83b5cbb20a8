import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 20_000,
    hookTimeout: 30_000,
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
        'admin/**/*.ts',
      ],
      reporter: ['text-summary', 'html', 'json-summary'],
      reportsDirectory: 'coverage',
    },
  },
})
