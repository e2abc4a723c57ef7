#include "cli/command.h"

int main(int argc, char** argv) { return tidemill::cli::Main(argc, argv); }
